"""BibTeX of what a run used: `citation("scaffold")`, `citation("fedhbm:first=shared", "wima")`, `citation(config)`."""

from fedwin.algorithms import ALGORITHMS
from fedwin.errors import UserError
from fedwin.losses import LOSSES
from fedwin.observers import OBSERVERS
from fedwin.registry import nearest
from fedwin.runs.config import Config
from fedwin.wrappers import WRAPPERS

# Wrappers, observers and losses; algorithms name their paper in their catalog entry.
OTHERS = {
    "ima": ("zhou2023understanding",),
    "wima": ("caldarola2023window",),
    "swa": ("caldarola2022improving", "izmailov2018averaging"),
    "ema": ("polyak1992acceleration",),
    "local_bn": ("andreux2020siloed", "li2021fedbn"),
    "wsm": ("legate2023reweighted",),
}

# Methods that rest on a second paper.
ALSO = {"fedsam": ("qu2022generalized", "foret2021sharpness"), "fedasam": ("kwon2021asam",)}


def _entry(kind, key, authors, title, year, where, **more):
    venue = {"article": "journal", "inproceedings": "booktitle", "misc": "howpublished"}[kind]
    fields = {"title": title, "author": " and ".join(authors), venue: where, "year": year, **more}
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@{kind}{{{key},\n{lines}\n}}"


def _arxiv(key, authors, title, year, number):
    return _entry("article", key, authors, title, year, f"arXiv preprint arXiv:{number}")


def _meeting(key, authors, title, year, where, number):
    return _entry("inproceedings", key, authors, title, year, where, note=f"arXiv:{number}")


_ICML = "International Conference on Machine Learning"
_ICLR = "International Conference on Learning Representations"
_NEURIPS = "Advances in Neural Information Processing Systems"

BIBTEX = {
    text.split("{", 1)[1].split(",", 1)[0]: text
    for text in (
        _meeting(
            "mcmahan2017communication",
            ("McMahan, Brendan", "Moore, Eider", "Ramage, Daniel", "Hampson, Seth", 'Ag{\\"u}era y Arcas, Blaise'),
            "Communication-Efficient Learning of Deep Networks from Decentralized Data",
            2017,
            "International Conference on Artificial Intelligence and Statistics",
            "1602.05629",
        ),
        _meeting(
            "reddi2021adaptive",
            (
                "Reddi, Sashank J.",
                "Charles, Zachary",
                "Zaheer, Manzil",
                "Garrett, Zachary",
                "Rush, Keith",
                "Kone{\\v{c}}n{\\'y}, Jakub",
                "Kumar, Sanjiv",
                "McMahan, H. Brendan",
            ),
            "Adaptive Federated Optimization",
            2021,
            _ICLR,
            "2003.00295",
        ),
        _arxiv(
            "hsu2019measuring",
            ("Hsu, Tzu-Ming Harry", "Qi, Hang", "Brown, Matthew"),
            "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
            2019,
            "1909.06335",
        ),
        _meeting(
            "li2020federated",
            (
                "Li, Tian",
                "Sahu, Anit Kumar",
                "Zaheer, Manzil",
                "Sanjabi, Maziar",
                "Talwalkar, Ameet",
                "Smith, Virginia",
            ),
            "Federated Optimization in Heterogeneous Networks",
            2020,
            "Proceedings of Machine Learning and Systems",
            "1812.06127",
        ),
        _meeting(
            "karimireddy2020scaffold",
            (
                "Karimireddy, Sai Praneeth",
                "Kale, Satyen",
                "Mohri, Mehryar",
                "Reddi, Sashank",
                "Stich, Sebastian",
                "Suresh, Ananda Theertha",
            ),
            "{SCAFFOLD}: Stochastic Controlled Averaging for Federated Learning",
            2020,
            _ICML,
            "1910.06378",
        ),
        _meeting(
            "acar2021federated",
            (
                "Acar, Durmus Alp Emre",
                "Zhao, Yue",
                "Matas Navarro, Ramon",
                "Mattina, Matthew",
                "Whatmough, Paul N.",
                "Saligrama, Venkatesh",
            ),
            "Federated Learning Based on Dynamic Regularization",
            2021,
            _ICLR,
            "2111.04263",
        ),
        _meeting(
            "varno2022adabest",
            (
                "Varno, Farshid",
                "Saghayi, Marzie",
                "Rafiee Sevyeri, Laya",
                "Gupta, Sharut",
                "Matwin, Stan",
                "Havaei, Mohammad",
            ),
            "{AdaBest}: Minimizing Client Drift in Federated Learning via Adaptive Bias Estimation",
            2022,
            "European Conference on Computer Vision",
            "2204.13170",
        ),
        _arxiv(
            "xu2021fedcm",
            ("Xu, Jing", "Wang, Sen", "Wang, Liwei", "Yao, Andrew Chi-Chih"),
            "{FedCM}: Federated Learning with Client-level Momentum",
            2021,
            "2106.10874",
        ),
        _meeting(
            "ozfatura2021fedadc",
            ("Ozfatura, Emre", "Ozfatura, Kerem", 'G{\\"u}nd{\\"u}z, Deniz'),
            "{FedADC}: Accelerated Federated Learning with Drift Control",
            2021,
            "IEEE International Symposium on Information Theory",
            "2012.09102",
        ),
        _meeting(
            "kim2024communication",
            ("Kim, Geeho", "Kim, Jinkyu", "Han, Bohyung"),
            "Communication-Efficient Federated Learning with Accelerated Client Gradient",
            2024,
            "IEEE/CVF Conference on Computer Vision and Pattern Recognition",
            "2201.03172",
        ),
        _meeting(
            "karimireddy2021breaking",
            (
                "Karimireddy, Sai Praneeth",
                "Jaggi, Martin",
                "Kale, Satyen",
                "Mohri, Mehryar",
                "Reddi, Sashank J.",
                "Stich, Sebastian U.",
                "Suresh, Ananda Theertha",
            ),
            "Breaking the Centralized Barrier for Cross-Device Federated Learning",
            2021,
            _NEURIPS,
            "2008.03606",
        ),
        _meeting(
            "wang2020tackling",
            ("Wang, Jianyu", "Liu, Qinghua", "Liang, Hao", "Joshi, Gauri", "Poor, H. Vincent"),
            "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
            2020,
            _NEURIPS,
            "2007.07481",
        ),
        _arxiv(
            "tenison2022gradient",
            (
                "Tenison, Irene",
                "Sreeramadas, Sai Aravind",
                "Mugunthan, Vaikkunth",
                "Oyallon, Edouard",
                "Rish, Irina",
                "Belilovsky, Eugene",
            ),
            "Gradient Masked Averaging for Federated Learning",
            2022,
            "2201.11986",
        ),
        _meeting(
            "caldarola2022improving",
            ("Caldarola, Debora", "Caputo, Barbara", "Ciccone, Marco"),
            "Improving Generalization in Federated Learning by Seeking Flat Minima",
            2022,
            "European Conference on Computer Vision",
            "2203.11834",
        ),
        _meeting(
            "qu2022generalized",
            ("Qu, Zhe", "Li, Xingyu", "Duan, Rui", "Liu, Yao", "Tang, Bo", "Lu, Zhuo"),
            "Generalized Federated Learning via Sharpness Aware Minimization",
            2022,
            _ICML,
            "2206.02618",
        ),
        _meeting(
            "foret2021sharpness",
            ("Foret, Pierre", "Kleiner, Ariel", "Mobahi, Hossein", "Neyshabur, Behnam"),
            "Sharpness-Aware Minimization for Efficiently Improving Generalization",
            2021,
            _ICLR,
            "2010.01412",
        ),
        _meeting(
            "kwon2021asam",
            ("Kwon, Jungmin", "Kim, Jeongseop", "Park, Hyunseo", "Choi, In Kwon"),
            "{ASAM}: Adaptive Sharpness-Aware Minimization for Scale-Invariant Learning of Deep Neural Networks",
            2021,
            _ICML,
            "2102.11600",
        ),
        _arxiv(
            "zhou2023fedfa",
            ("Zhou, Tailin", "Zhang, Jun", "Tsang, Danny H. K."),
            "{FedFA}: Federated Learning with Feature Anchors to Align Features and Classifiers for Heterogeneous Data",
            2023,
            "2211.09299",
        ),
        _arxiv(
            "zaccone2023communication",
            ("Zaccone, Riccardo", "Masone, Carlo", "Ciccone, Marco"),
            "Communication-Efficient Heterogeneous Federated Learning with Generalized Heavy-Ball Momentum",
            2023,
            "2311.18578",
        ),
        _arxiv(
            "zhou2023understanding",
            ("Zhou, Tailin", "Lin, Zehong", "Zhang, Jun", "Tsang, Danny H. K."),
            "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data",
            2023,
            "2305.07845",
        ),
        _meeting(
            "caldarola2023window",
            ("Caldarola, Debora", "Caputo, Barbara", "Ciccone, Marco"),
            "Window-based Model Averaging Improves Generalization in Heterogeneous Federated Learning",
            2023,
            "IEEE/CVF International Conference on Computer Vision Workshops",
            "2310.01366",
        ),
        _meeting(
            "izmailov2018averaging",
            (
                "Izmailov, Pavel",
                "Podoprikhin, Dmitrii",
                "Garipov, Timur",
                "Vetrov, Dmitry",
                "Wilson, Andrew Gordon",
            ),
            "Averaging Weights Leads to Wider Optima and Better Generalization",
            2018,
            "Conference on Uncertainty in Artificial Intelligence",
            "1803.05407",
        ),
        _entry(
            "article",
            "polyak1992acceleration",
            ("Polyak, Boris T.", "Juditsky, Anatoli B."),
            "Acceleration of Stochastic Approximation by Averaging",
            1992,
            "SIAM Journal on Control and Optimization",
            volume=30,
            number=4,
            pages="838--855",
        ),
        _meeting(
            "andreux2020siloed",
            ("Andreux, Mathieu", "Ogier du Terrail, Jean", "Beguier, Constance", "Tramel, Eric W."),
            "Siloed Federated Learning for Multi-Centric Histopathology Datasets",
            2020,
            "Domain Adaptation and Representation Transfer, and Distributed and Collaborative Learning",
            "2008.07424",
        ),
        _meeting(
            "li2021fedbn",
            ("Li, Xiaoxiao", "Jiang, Meirui", "Zhang, Xiaofei", "Kamp, Michael", "Dou, Qi"),
            "{FedBN}: Federated Learning on Non-{IID} Features via Local Batch Normalization",
            2021,
            _ICLR,
            "2102.07623",
        ),
        _arxiv(
            "legate2023reweighted",
            ("Legate, Gwen", "Caccia, Lucas", "Belilovsky, Eugene"),
            "Re-Weighted Softmax Cross-Entropy to Control Forgetting in Federated Learning",
            2023,
            "2304.05260",
        ),
    )
}


def _keys(name: str) -> tuple[str, ...]:
    """Returns the BibTeX keys of a method, wrapper, observer or loss; raises UserError for an unknown name."""
    name = name.partition(":")[0].strip().lower()
    if name in ALGORITHMS.entries:
        return ALGORITHMS.entries[name].paper.key, *ALSO.get(name, ())
    if name in OTHERS:
        return OTHERS[name]
    known = sorted([*ALGORITHMS.entries, *OTHERS])
    raise UserError(f"no citation for '{name}'.{nearest(name, known)} Known: {', '.join(known)}.")


def _used(config: Config) -> list[str]:
    """Returns what a run is made of, without what has no paper (plain cross-entropy, clipping, a method of one's own)."""
    parts = (
        (ALGORITHMS, [config.algorithm]),
        (WRAPPERS, config.wrap),
        (OBSERVERS, config.observe),
        (LOSSES, [config.loss]),
    )
    names = [(known, text.partition(":")[0].strip()) for known, texts in parts for text in texts]
    return [name for known, name in names if name not in known or name in ALGORITHMS.entries or name in OTHERS]


def citation(*what: str | Config) -> str:
    """Returns the BibTeX of methods, wrappers, observers and losses, every paper once.

    Args:
      what: names, whose parameters (`name:key=value`) are ignored, or a Config: all that its run uses.

    Raises UserError for an unknown name.
    """
    names = [name for one in what for name in (_used(one) if isinstance(one, Config) else [one])]
    return "\n\n".join(BIBTEX[key] for key in dict.fromkeys(key for name in names for key in _keys(name)))
